NAME        
ROWS
 N  NoObj   
 E  r0      
 E  r1      
 E  r2      
 E  r3      
 E  r4      
 E  r5      
 E  r6      
 E  r7      
 E  r8      
 G  r9      
 G  r10     
 G  r11     
 G  r12     
 G  r13     
 G  r14     
 G  r15     
 G  r16     
 L  r17     
 L  r18     
 L  r19     
 L  r20     
 L  r21     
 L  r22     
 L  r23     
 L  r24     
 L  r25     
 L  r26     
 L  r27     
 L  r28     
 L  r29     
 L  r30     
 E  r31     
 E  r32     
 E  r33     
 E  r34     
 E  r35     
 L  r36     
 L  r37     
 L  r38     
 L  r39     
 L  r40     
 L  r41     
 L  r42     
 L  r43     
 L  r44     
 L  r45     
 L  r46     
 L  r47     
 L  r48     
 L  r49     
 L  r50     
 L  r51     
 L  r52     
 L  r53     
 L  r54     
 L  r55     
 L  r56     
 L  r57     
 L  r58     
 L  r59     
 L  r60     
 L  r61     
 L  r62     
 L  r63     
 L  r64     
 L  r65     
 L  r66     
 L  r67     
 L  r68     
 L  r69     
 L  r70     
 L  r71     
 L  r72     
 L  r73     
 L  r74     
 L  r75     
 L  r76     
 L  r77     
 L  r78     
 L  r79     
 L  r80     
 L  r81     
 L  r82     
 L  r83     
 L  r84     
 L  r85     
 L  r86     
 L  r87     
 L  r88     
 L  r89     
 L  r90     
 L  r91     
 L  r92     
 L  r93     
 L  r94     
 L  r95     
 L  r96     
 L  r97     
 L  r98     
 L  r99     
 L  r100    
 L  r101    
 L  r102    
 L  r103    
 L  r104    
 L  r105    
 L  r106    
 L  r107    
 L  r108    
 L  r109    
 L  r110    
 L  r111    
 L  r112    
 L  r113    
 L  r114    
 L  r115    
 L  r116    
 L  r117    
 L  r118    
 L  r119    
 L  r120    
 L  r121    
 L  r122    
 L  r123    
 L  r124    
 L  r125    
 L  r126    
 L  r127    
 L  r128    
 L  r129    
 L  r130    
 L  r131    
 L  r132    
 L  r133    
 L  r134    
 L  r135    
 L  r136    
 L  r137    
 L  r138    
 L  r139    
 L  r140    
 L  r141    
 L  r142    
 L  r143    
 L  r144    
 L  r145    
 L  r146    
 L  r147    
 L  r148    
 L  r149    
 L  r150    
 L  r151    
 L  r152    
 L  r153    
 L  r154    
 L  r155    
 L  r156    
 L  r157    
 L  r158    
 L  r159    
 L  r160    
 L  r161    
 L  r162    
 L  r163    
 G  r164    
 G  r165    
 L  r166    
 L  r167    
 L  r168    
 L  r169    
 L  r170    
 L  r171    
 L  r172    
 L  r173    
 L  r174    
 L  r175    
 L  r176    
 L  r177    
 L  r178    
 L  r179    
 L  r180    
 L  r181    
 L  r182    
 L  r183    
 L  r184    
 L  r185    
 L  r186    
 L  r187    
 L  r188    
 L  r189    
 L  r190    
 L  r191    
 L  r192    
 L  r193    
 L  r194    
 L  r195    
 L  r196    
 L  r197    
 L  r198    
 L  r199    
 L  r200    
 L  r201    
 L  r202    
 L  r203    
 L  r204    
 L  r205    
 L  r206    
 L  r207    
 L  r208    
 L  r209    
 L  r210    
 L  r211    
 L  r212    
 L  r213    
 L  r214    
 L  r215    
 L  r216    
 L  r217    
 L  r218    
 L  r219    
 L  r220    
 L  r221    
 L  r222    
 L  r223    
 L  r224    
 L  r225    
 L  r226    
 L  r227    
 L  r228    
 L  r229    
 L  r230    
 L  r231    
 L  r232    
COLUMNS
    MARK0000  'MARKER'                 'INTORG'
    c0        r0        1
    c0        r166      -220
    c0        r167      -220
    c1        r0        1
    c1        r166      -217
    c1        r167      -217
    c1        r168      -6
    c1        r169      -6
    c1        r170      -6
    c2        r0        1
    c2        r166      -213
    c2        r167      -213
    c2        r168      -12
    c2        r169      -12
    c2        r170      -12
    c3        r0        1
    c3        r166      -209
    c3        r167      -209
    c3        r168      -18
    c3        r169      -18
    c3        r170      -18
    c4        r0        1
    c4        r166      -206
    c4        r167      -206
    c4        r168      -24
    c4        r169      -24
    c4        r170      -24
    c5        r0        1
    c5        r166      -200
    c5        r167      -200
    c5        r168      -34
    c5        r169      -34
    c5        r170      -34
    c6        r0        1
    c6        r166      -193
    c6        r167      -193
    c6        r168      -46
    c6        r169      -46
    c6        r170      -46
    c7        r0        1
    c7        r166      -180
    c7        r167      -180
    c7        r168      -67
    c7        r169      -67
    c7        r170      -67
    c8        r0        1
    c8        r166      -166
    c8        r167      -166
    c8        r168      -90
    c8        r169      -90
    c8        r170      -90
    c9        r1        1
    c9        r36       1
    c9        r164      1
    c9        r166      137
    c9        r171      100
    c10       r1        1
    c10       r37       1
    c10       r164      1
    c10       r166      137
    c10       r171      100
    c11       r1        1
    c11       r38       1
    c11       r164      1
    c11       r166      137
    c11       r171      100
    c12       r1        1
    c12       r39       1
    c12       r164      1
    c12       r166      141
    c12       r171      86
    c13       r1        1
    c13       r40       1
    c13       r164      1
    c13       r166      141
    c13       r171      86
    c14       r1        1
    c14       r41       1
    c14       r164      1
    c14       r166      141
    c14       r171      86
    c15       r1        1
    c15       r42       1
    c15       r164      1
    c15       r166      141
    c15       r171      54
    c16       r1        1
    c16       r43       1
    c16       r164      1
    c16       r166      141
    c16       r171      54
    c17       r1        1
    c17       r44       1
    c17       r164      1
    c17       r166      141
    c17       r171      54
    c18       r1        1
    c18       r45       1
    c18       r164      1
    c18       r166      141
    c18       r171      74
    c19       r1        1
    c19       r46       1
    c19       r164      1
    c19       r166      141
    c19       r171      74
    c20       r1        1
    c20       r47       1
    c20       r164      1
    c20       r166      141
    c20       r171      74
    c21       r1        -1
    c21       r2        1
    c21       r9        1
    c21       r17       1
    c22       r2        -1
    c22       r10       1
    c22       r18       1
    c23       r3        1
    c23       r48       1
    c23       r164      1
    c23       r166      53
    c23       r168      44
    c23       r171      188
    c24       r3        1
    c24       r49       1
    c24       r164      1
    c24       r166      121
    c24       r168      22
    c24       r171      160
    c25       r3        1
    c25       r50       1
    c25       r164      1
    c25       r166      53
    c25       r168      44
    c25       r171      176
    c26       r3        1
    c26       r51       1
    c26       r164      1
    c26       r166      121
    c26       r168      22
    c26       r171      148
    c27       r3        1
    c27       r52       1
    c27       r164      1
    c27       r166      82
    c27       r168      44
    c27       r171      144
    c28       r3        1
    c28       r53       1
    c28       r164      1
    c28       r166      150
    c28       r168      22
    c28       r171      116
    c29       r3        1
    c29       r54       1
    c29       r164      1
    c29       r166      82
    c29       r168      44
    c29       r171      162
    c30       r3        1
    c30       r55       1
    c30       r164      1
    c30       r166      150
    c30       r168      22
    c30       r171      134
    c31       r3        -1
    c31       r4        1
    c31       r11       1
    c31       r19       1
    c31       r25       1
    c32       r4        1
    c32       r64       1
    c32       r165      1
    c32       r167      33
    c32       r169      3
    c32       r170      11
    c32       r172      162
    c33       r4        1
    c33       r65       1
    c33       r165      1
    c33       r167      51
    c33       r169      2
    c33       r170      6
    c33       r172      134
    c34       r4        1
    c34       r66       1
    c34       r165      1
    c34       r167      87
    c34       r172      130
    c35       r4        1
    c35       r67       1
    c35       r165      1
    c35       r167      33
    c35       r169      3
    c35       r170      11
    c35       r172      156
    c36       r4        1
    c36       r68       1
    c36       r165      1
    c36       r167      51
    c36       r169      2
    c36       r170      6
    c36       r172      128
    c37       r4        1
    c37       r69       1
    c37       r165      1
    c37       r167      87
    c37       r172      124
    c38       r4        1
    c38       r70       1
    c38       r165      1
    c38       r167      42
    c38       r169      3
    c38       r170      11
    c38       r172      140
    c39       r4        1
    c39       r71       1
    c39       r165      1
    c39       r167      60
    c39       r169      2
    c39       r170      6
    c39       r172      112
    c40       r4        1
    c40       r72       1
    c40       r165      1
    c40       r167      96
    c40       r172      108
    c41       r4        1
    c41       r73       1
    c41       r165      1
    c41       r167      42
    c41       r169      3
    c41       r170      11
    c41       r172      162
    c42       r4        1
    c42       r74       1
    c42       r165      1
    c42       r167      60
    c42       r169      2
    c42       r170      6
    c42       r172      134
    c43       r4        1
    c43       r75       1
    c43       r165      1
    c43       r167      96
    c43       r172      130
    c44       r4        -1
    c44       r12       1
    c44       r20       1
    c44       r26       1
    c45       r5        1
    c45       r56       1
    c45       r164      1
    c45       r166      53
    c45       r168      44
    c45       r171      188
    c46       r5        1
    c46       r57       1
    c46       r164      1
    c46       r166      121
    c46       r168      22
    c46       r171      160
    c47       r5        1
    c47       r58       1
    c47       r164      1
    c47       r166      53
    c47       r168      44
    c47       r171      176
    c48       r5        1
    c48       r59       1
    c48       r164      1
    c48       r166      121
    c48       r168      22
    c48       r171      148
    c49       r5        1
    c49       r60       1
    c49       r164      1
    c49       r166      82
    c49       r168      44
    c49       r171      144
    c50       r5        1
    c50       r61       1
    c50       r164      1
    c50       r166      150
    c50       r168      22
    c50       r171      116
    c51       r5        1
    c51       r62       1
    c51       r164      1
    c51       r166      82
    c51       r168      44
    c51       r171      162
    c52       r5        1
    c52       r63       1
    c52       r164      1
    c52       r166      150
    c52       r168      22
    c52       r171      134
    c53       r5        -1
    c53       r6        1
    c53       r13       1
    c53       r21       1
    c53       r27       1
    c54       r6        1
    c54       r76       1
    c54       r165      1
    c54       r167      33
    c54       r169      3
    c54       r170      11
    c54       r172      162
    c55       r6        1
    c55       r77       1
    c55       r165      1
    c55       r167      51
    c55       r169      2
    c55       r170      6
    c55       r172      134
    c56       r6        1
    c56       r78       1
    c56       r165      1
    c56       r167      87
    c56       r172      130
    c57       r6        1
    c57       r79       1
    c57       r165      1
    c57       r167      33
    c57       r169      3
    c57       r170      11
    c57       r172      156
    c58       r6        1
    c58       r80       1
    c58       r165      1
    c58       r167      51
    c58       r169      2
    c58       r170      6
    c58       r172      128
    c59       r6        1
    c59       r81       1
    c59       r165      1
    c59       r167      87
    c59       r172      124
    c60       r6        1
    c60       r82       1
    c60       r165      1
    c60       r167      42
    c60       r169      3
    c60       r170      11
    c60       r172      140
    c61       r6        1
    c61       r83       1
    c61       r165      1
    c61       r167      60
    c61       r169      2
    c61       r170      6
    c61       r172      112
    c62       r6        1
    c62       r84       1
    c62       r165      1
    c62       r167      96
    c62       r172      108
    c63       r6        1
    c63       r85       1
    c63       r165      1
    c63       r167      42
    c63       r169      3
    c63       r170      11
    c63       r172      162
    c64       r6        1
    c64       r86       1
    c64       r165      1
    c64       r167      60
    c64       r169      2
    c64       r170      6
    c64       r172      134
    c65       r6        1
    c65       r87       1
    c65       r165      1
    c65       r167      96
    c65       r172      130
    c66       r6        -1
    c66       r14       1
    c66       r22       1
    c66       r28       1
    c67       r7        -1
    c67       r8        1
    c67       r15       1
    c67       r23       1
    c67       r29       1
    c68       r8        1
    c68       r88       1
    c68       r165      1
    c68       r167      57
    c68       r169      3
    c68       r170      10
    c68       r172      98
    c69       r8        1
    c69       r89       1
    c69       r165      1
    c69       r167      73
    c69       r169      2
    c69       r170      5
    c69       r172      74
    c70       r8        1
    c70       r90       1
    c70       r165      1
    c70       r167      105
    c70       r172      71
    c71       r8        1
    c71       r91       1
    c71       r165      1
    c71       r167      60
    c71       r169      3
    c71       r170      10
    c71       r172      97
    c72       r8        1
    c72       r92       1
    c72       r165      1
    c72       r167      76
    c72       r169      2
    c72       r170      5
    c72       r172      73
    c73       r8        1
    c73       r93       1
    c73       r165      1
    c73       r167      108
    c73       r172      70
    c74       r8        1
    c74       r94       1
    c74       r165      1
    c74       r167      72
    c74       r169      3
    c74       r170      10
    c74       r172      84
    c75       r8        1
    c75       r95       1
    c75       r165      1
    c75       r167      88
    c75       r169      2
    c75       r170      5
    c75       r172      60
    c76       r8        1
    c76       r96       1
    c76       r165      1
    c76       r167      120
    c76       r172      57
    c77       r8        1
    c77       r97       1
    c77       r165      1
    c77       r167      72
    c77       r169      3
    c77       r170      10
    c77       r172      98
    c78       r8        1
    c78       r98       1
    c78       r165      1
    c78       r167      88
    c78       r169      2
    c78       r170      5
    c78       r172      74
    c79       r8        1
    c79       r99       1
    c79       r165      1
    c79       r167      120
    c79       r172      71
    c80       r8        -1
    c80       r16       1
    c80       r24       1
    c80       r30       1
    c81       r9        -1
    c81       r17       -1
    c81       r25       -1
    c81       r32       1
    c81       r33       -1
    c82       r10       -1
    c82       r18       -1
    c82       r26       -1
    c83       r11       -1
    c83       r19       -1
    c83       r27       -2
    c83       r33       1
    c83       r34       -1
    c84       r12       -1
    c84       r20       -1
    c84       r28       -2
    c85       r13       -2
    c85       r21       -1
    c85       r29       -1
    c85       r34       1
    c85       r35       -1
    c86       r14       -2
    c86       r22       -1
    c86       r30       -1
    c87       r15       -1
    c87       r23       -1
    c87       r35       1
    c88       r16       -1
    c88       r24       -1
    c89       r31       1
    c89       r100      -1
    c89       r112      -1
    c89       r120      -1
    c90       r31       1
    c90       r101      -1
    c90       r113      -1
    c90       r121      -1
    c91       r31       1
    c91       r102      -1
    c91       r205      6
    c92       r31       1
    c92       r103      -1
    c92       r114      -1
    c92       r122      -1
    c92       r173      6
    c92       r179      6
    c92       r183      6
    c93       r31       1
    c93       r104      -1
    c93       r115      -1
    c93       r123      -1
    c93       r174      6
    c93       r180      6
    c93       r184      6
    c94       r31       1
    c94       r105      -1
    c94       r175      6
    c94       r206      6
    c95       r31       1
    c95       r106      -1
    c95       r116      -1
    c95       r124      -1
    c95       r176      26
    c95       r181      26
    c95       r185      26
    c96       r31       1
    c96       r107      -1
    c96       r117      -1
    c96       r125      -1
    c96       r177      26
    c96       r182      26
    c96       r186      26
    c97       r31       1
    c97       r108      -1
    c97       r178      26
    c97       r207      6
    c98       r31       1
    c98       r109      -1
    c98       r118      -1
    c98       r126      -1
    c98       r171      3
    c99       r31       1
    c99       r110      -1
    c99       r119      -1
    c99       r127      -1
    c99       r171      3
    c100      r31       1
    c100      r111      -1
    c100      r171      3
    c100      r208      6
    c101      r33       1
    c101      r128      -1
    c101      r140      -1
    c101      r152      -1
    c101      r166      149
    c101      r167      149
    c101      r227      1
    c101      r228      1
    c101      r229      1
    c102      r33       1
    c102      r129      -1
    c102      r141      -1
    c102      r153      -1
    c102      r166      149
    c102      r167      149
    c102      r230      1
    c102      r231      1
    c102      r232      1
    c103      r33       1
    c103      r130      -1
    c103      r142      -1
    c103      r154      -1
    c103      r166      149
    c103      r167      149
    c103      r209      10
    c103      r213      10
    c103      r217      10
    c104      r33       1
    c104      r131      -1
    c104      r143      -1
    c104      r155      -1
    c104      r166      149
    c104      r167      149
    c104      r187      1
    c104      r193      1
    c104      r199      1
    c104      r227      1
    c104      r228      1
    c104      r229      1
    c105      r33       1
    c105      r132      -1
    c105      r144      -1
    c105      r156      -1
    c105      r166      149
    c105      r167      149
    c105      r188      1
    c105      r194      1
    c105      r200      1
    c105      r230      1
    c105      r231      1
    c105      r232      1
    c106      r33       1
    c106      r133      -1
    c106      r145      -1
    c106      r157      -1
    c106      r166      149
    c106      r167      149
    c106      r189      1
    c106      r195      1
    c106      r201      1
    c106      r210      10
    c106      r214      10
    c106      r218      10
    c107      r33       1
    c107      r134      -1
    c107      r146      -1
    c107      r158      -1
    c107      r166      149
    c107      r167      149
    c107      r190      18
    c107      r196      18
    c107      r202      18
    c107      r227      1
    c107      r228      1
    c107      r229      1
    c108      r33       1
    c108      r135      -1
    c108      r147      -1
    c108      r159      -1
    c108      r166      149
    c108      r167      149
    c108      r191      18
    c108      r197      18
    c108      r203      18
    c108      r230      1
    c108      r231      1
    c108      r232      1
    c109      r33       1
    c109      r136      -1
    c109      r148      -1
    c109      r160      -1
    c109      r166      149
    c109      r167      149
    c109      r192      18
    c109      r198      18
    c109      r204      18
    c109      r211      10
    c109      r215      10
    c109      r219      10
    c110      r33       1
    c110      r137      -1
    c110      r149      -1
    c110      r161      -1
    c110      r166      149
    c110      r167      149
    c110      r227      1
    c110      r228      1
    c110      r229      1
    c111      r33       1
    c111      r138      -1
    c111      r150      -1
    c111      r162      -1
    c111      r166      149
    c111      r167      149
    c111      r230      1
    c111      r231      1
    c111      r232      1
    c112      r33       1
    c112      r139      -1
    c112      r151      -1
    c112      r163      -1
    c112      r166      149
    c112      r167      149
    c112      r212      10
    c112      r216      10
    c112      r220      10
    c113      r34       1
    c113      r128      -1
    c113      r140      -1
    c113      r152      -1
    c113      r166      3
    c113      r167      3
    c113      r227      1
    c113      r228      1
    c113      r229      1
    c114      r34       1
    c114      r129      -1
    c114      r141      -1
    c114      r153      -1
    c114      r166      3
    c114      r167      3
    c114      r230      1
    c114      r231      1
    c114      r232      1
    c115      r34       1
    c115      r130      -1
    c115      r142      -1
    c115      r154      -1
    c115      r166      3
    c115      r167      3
    c115      r209      10
    c115      r213      10
    c115      r217      10
    c116      r34       1
    c116      r131      -1
    c116      r143      -1
    c116      r155      -1
    c116      r166      3
    c116      r167      3
    c116      r187      1
    c116      r193      1
    c116      r199      1
    c116      r227      1
    c116      r228      1
    c116      r229      1
    c117      r34       1
    c117      r132      -1
    c117      r144      -1
    c117      r156      -1
    c117      r166      3
    c117      r167      3
    c117      r188      1
    c117      r194      1
    c117      r200      1
    c117      r230      1
    c117      r231      1
    c117      r232      1
    c118      r34       1
    c118      r133      -1
    c118      r145      -1
    c118      r157      -1
    c118      r166      3
    c118      r167      3
    c118      r189      1
    c118      r195      1
    c118      r201      1
    c118      r210      10
    c118      r214      10
    c118      r218      10
    c119      r34       1
    c119      r134      -1
    c119      r146      -1
    c119      r158      -1
    c119      r166      3
    c119      r167      3
    c119      r190      18
    c119      r196      18
    c119      r202      18
    c119      r227      1
    c119      r228      1
    c119      r229      1
    c120      r34       1
    c120      r135      -1
    c120      r147      -1
    c120      r159      -1
    c120      r166      3
    c120      r167      3
    c120      r191      18
    c120      r197      18
    c120      r203      18
    c120      r230      1
    c120      r231      1
    c120      r232      1
    c121      r34       1
    c121      r136      -1
    c121      r148      -1
    c121      r160      -1
    c121      r166      3
    c121      r167      3
    c121      r192      18
    c121      r198      18
    c121      r204      18
    c121      r211      10
    c121      r215      10
    c121      r219      10
    c122      r34       1
    c122      r137      -1
    c122      r149      -1
    c122      r161      -1
    c122      r166      3
    c122      r167      3
    c122      r227      1
    c122      r228      1
    c122      r229      1
    c123      r34       1
    c123      r138      -1
    c123      r150      -1
    c123      r162      -1
    c123      r166      3
    c123      r167      3
    c123      r230      1
    c123      r231      1
    c123      r232      1
    c124      r34       1
    c124      r139      -1
    c124      r151      -1
    c124      r163      -1
    c124      r166      3
    c124      r167      3
    c124      r212      10
    c124      r216      10
    c124      r220      10
    c125      r35       1
    c125      r128      -1
    c125      r140      -1
    c125      r152      -1
    c125      r166      3
    c125      r167      3
    c125      r227      1
    c125      r228      1
    c125      r229      1
    c126      r35       1
    c126      r129      -1
    c126      r141      -1
    c126      r153      -1
    c126      r166      3
    c126      r167      3
    c126      r230      1
    c126      r231      1
    c126      r232      1
    c127      r35       1
    c127      r130      -1
    c127      r142      -1
    c127      r154      -1
    c127      r166      3
    c127      r167      3
    c127      r209      10
    c127      r213      10
    c127      r217      10
    c128      r35       1
    c128      r131      -1
    c128      r143      -1
    c128      r155      -1
    c128      r166      3
    c128      r167      3
    c128      r187      1
    c128      r193      1
    c128      r199      1
    c128      r227      1
    c128      r228      1
    c128      r229      1
    c129      r35       1
    c129      r132      -1
    c129      r144      -1
    c129      r156      -1
    c129      r166      3
    c129      r167      3
    c129      r188      1
    c129      r194      1
    c129      r200      1
    c129      r230      1
    c129      r231      1
    c129      r232      1
    c130      r35       1
    c130      r133      -1
    c130      r145      -1
    c130      r157      -1
    c130      r166      3
    c130      r167      3
    c130      r189      1
    c130      r195      1
    c130      r201      1
    c130      r210      10
    c130      r214      10
    c130      r218      10
    c131      r35       1
    c131      r134      -1
    c131      r146      -1
    c131      r158      -1
    c131      r166      3
    c131      r167      3
    c131      r190      18
    c131      r196      18
    c131      r202      18
    c131      r227      1
    c131      r228      1
    c131      r229      1
    c132      r35       1
    c132      r135      -1
    c132      r147      -1
    c132      r159      -1
    c132      r166      3
    c132      r167      3
    c132      r191      18
    c132      r197      18
    c132      r203      18
    c132      r230      1
    c132      r231      1
    c132      r232      1
    c133      r35       1
    c133      r136      -1
    c133      r148      -1
    c133      r160      -1
    c133      r166      3
    c133      r167      3
    c133      r192      18
    c133      r198      18
    c133      r204      18
    c133      r211      10
    c133      r215      10
    c133      r219      10
    c134      r35       1
    c134      r137      -1
    c134      r149      -1
    c134      r161      -1
    c134      r166      3
    c134      r167      3
    c134      r227      1
    c134      r228      1
    c134      r229      1
    c135      r35       1
    c135      r138      -1
    c135      r150      -1
    c135      r162      -1
    c135      r166      3
    c135      r167      3
    c135      r230      1
    c135      r231      1
    c135      r232      1
    c136      r35       1
    c136      r139      -1
    c136      r151      -1
    c136      r163      -1
    c136      r166      3
    c136      r167      3
    c136      r212      10
    c136      r216      10
    c136      r220      10
    c137      r36       -1
    c137      r100      1
    c138      r37       -1
    c138      r101      1
    c139      r38       -1
    c139      r102      1
    c140      r39       -1
    c140      r103      1
    c140      r173      1
    c141      r40       -1
    c141      r104      1
    c141      r174      1
    c142      r41       -1
    c142      r105      1
    c142      r175      1
    c143      r42       -1
    c143      r106      1
    c144      r43       -1
    c144      r107      1
    c145      r44       -1
    c145      r108      1
    c146      r45       -1
    c146      r109      1
    c147      r46       -1
    c147      r110      1
    c148      r47       -1
    c148      r111      1
    c149      r48       -1
    c149      r112      1
    c149      r221      1
    c150      r49       -1
    c150      r113      1
    c150      r224      1
    c151      r50       -1
    c151      r114      1
    c151      r221      1
    c152      r51       -1
    c152      r115      1
    c152      r224      1
    c153      r52       -1
    c153      r116      1
    c153      r221      1
    c154      r53       -1
    c154      r117      1
    c154      r224      1
    c155      r54       -1
    c155      r118      1
    c155      r221      1
    c156      r55       -1
    c156      r119      1
    c156      r224      1
    c157      r56       -2
    c157      r120      1
    c157      r222      1
    c158      r57       -1
    c158      r121      1
    c158      r225      1
    c159      r58       -2
    c159      r122      1
    c159      r222      1
    c160      r59       -1
    c160      r123      1
    c160      r225      1
    c161      r60       -2
    c161      r124      1
    c161      r222      1
    c162      r61       -1
    c162      r125      1
    c162      r225      1
    c163      r62       -2
    c163      r126      1
    c163      r222      1
    c164      r63       -1
    c164      r127      1
    c164      r225      1
    c165      r64       -1
    c165      r128      1
    c166      r65       -1
    c166      r129      1
    c167      r66       -1
    c167      r130      1
    c167      r209      7
    c168      r67       -1
    c168      r131      1
    c168      r187      5
    c169      r68       -1
    c169      r132      1
    c169      r188      5
    c170      r69       -1
    c170      r133      1
    c170      r189      5
    c170      r210      7
    c171      r70       -1
    c171      r134      1
    c171      r190      8
    c172      r71       -1
    c172      r135      1
    c172      r191      8
    c173      r72       -1
    c173      r136      1
    c173      r192      8
    c173      r211      7
    c174      r73       -1
    c174      r137      1
    c175      r74       -1
    c175      r138      1
    c176      r75       -1
    c176      r139      1
    c176      r212      7
    c177      r76       -2
    c177      r140      1
    c178      r77       -2
    c178      r141      1
    c179      r78       -2
    c179      r142      1
    c179      r213      7
    c180      r79       -2
    c180      r143      1
    c180      r193      5
    c181      r80       -2
    c181      r144      1
    c181      r194      5
    c182      r81       -2
    c182      r145      1
    c182      r195      5
    c182      r214      7
    c183      r82       -2
    c183      r146      1
    c183      r196      8
    c184      r83       -2
    c184      r147      1
    c184      r197      8
    c185      r84       -2
    c185      r148      1
    c185      r198      8
    c185      r215      7
    c186      r85       -2
    c186      r149      1
    c187      r86       -2
    c187      r150      1
    c188      r87       -2
    c188      r151      1
    c188      r216      7
    c189      r88       -1
    c189      r152      1
    c190      r89       -1
    c190      r153      1
    c191      r90       -1
    c191      r154      1
    c192      r91       -1
    c192      r155      1
    c193      r92       -1
    c193      r156      1
    c194      r93       -1
    c194      r157      1
    c195      r94       -1
    c195      r158      1
    c196      r95       -1
    c196      r159      1
    c197      r96       -1
    c197      r160      1
    c198      r97       -1
    c198      r161      1
    c199      r98       -1
    c199      r162      1
    c200      r99       -1
    c200      r163      1
    MARK0001  'MARKER'                 'INTEND'
    c201      r168      2
    c201      r221      -1
    c201      r222      -1
    c201      r223      -1
    c202      r168      1
    c202      r224      -1
    c202      r225      -1
    c202      r226      -1
    c203      r169      2
    c203      r170      2
    c203      r227      -1
    c203      r228      -1
    c203      r229      -1
    c204      r169      1
    c204      r170      1
    c204      r230      -1
    c204      r231      -1
    c204      r232      -1
    c205      r171      1
    c205      r205      -1
    c206      r171      1
    c206      r173      -1
    c206      r179      -1
    c206      r183      -1
    c207      r171      1
    c207      r174      -1
    c207      r180      -1
    c207      r184      -1
    c208      r171      1
    c208      r175      -1
    c209      r171      1
    c209      r206      -1
    c210      r171      1
    c210      r176      -1
    c210      r181      -1
    c210      r185      -1
    c211      r171      1
    c211      r177      -1
    c211      r182      -1
    c211      r186      -1
    c212      r171      1
    c212      r178      -1
    c213      r171      1
    c213      r207      -1
    c214      r171      1
    c214      r208      -1
    c215      r172      1
    c215      r209      -1
    c215      r213      -1
    c215      r217      -1
    c216      r172      1
    c216      r187      -1
    c216      r193      -1
    c216      r199      -1
    c217      r172      1
    c217      r188      -1
    c217      r194      -1
    c217      r200      -1
    c218      r172      1
    c218      r189      -1
    c218      r195      -1
    c218      r201      -1
    c219      r172      1
    c219      r210      -1
    c219      r214      -1
    c219      r218      -1
    c220      r172      1
    c220      r190      -1
    c220      r196      -1
    c220      r202      -1
    c221      r172      1
    c221      r191      -1
    c221      r197      -1
    c221      r203      -1
    c222      r172      1
    c222      r192      -1
    c222      r198      -1
    c222      r204      -1
    c223      r172      1
    c223      r211      -1
    c223      r215      -1
    c223      r219      -1
    c224      r172      1
    c224      r212      -1
    c224      r216      -1
    c224      r220      -1
RHS
    RHS_V     r0        1
    RHS_V     r21       1
    RHS_V     r22       1
    RHS_V     r31       1
    RHS_V     r32       1
    RHS_V     r164      1
    RHS_V     r165      1
    RHS_V     r171      612
    RHS_V     r172      612
BOUNDS
 BV BOUND     c0      
 BV BOUND     c1      
 BV BOUND     c2      
 BV BOUND     c3      
 BV BOUND     c4      
 BV BOUND     c5      
 BV BOUND     c6      
 BV BOUND     c7      
 BV BOUND     c8      
 BV BOUND     c9      
 BV BOUND     c10     
 BV BOUND     c11     
 BV BOUND     c12     
 BV BOUND     c13     
 BV BOUND     c14     
 BV BOUND     c15     
 BV BOUND     c16     
 BV BOUND     c17     
 BV BOUND     c18     
 BV BOUND     c19     
 BV BOUND     c20     
 FX BOUND     c21       1
 FX BOUND     c22       1
 BV BOUND     c23     
 BV BOUND     c24     
 BV BOUND     c25     
 BV BOUND     c26     
 BV BOUND     c27     
 BV BOUND     c28     
 BV BOUND     c29     
 BV BOUND     c30     
 BV BOUND     c31     
 BV BOUND     c32     
 BV BOUND     c33     
 BV BOUND     c34     
 BV BOUND     c35     
 BV BOUND     c36     
 BV BOUND     c37     
 BV BOUND     c38     
 BV BOUND     c39     
 BV BOUND     c40     
 BV BOUND     c41     
 BV BOUND     c42     
 BV BOUND     c43     
 FX BOUND     c44       1
 UI BOUND     c45       2
 BV BOUND     c46     
 UI BOUND     c47       2
 BV BOUND     c48     
 UI BOUND     c49       2
 BV BOUND     c50     
 UI BOUND     c51       2
 BV BOUND     c52     
 UI BOUND     c53       2
 UI BOUND     c54       2
 UI BOUND     c55       2
 UI BOUND     c56       2
 UI BOUND     c57       2
 UI BOUND     c58       2
 UI BOUND     c59       2
 UI BOUND     c60       2
 UI BOUND     c61       2
 UI BOUND     c62       2
 UI BOUND     c63       2
 UI BOUND     c64       2
 UI BOUND     c65       2
 FX BOUND     c66       2
 FX BOUND     c67       0
 BV BOUND     c68     
 BV BOUND     c69     
 BV BOUND     c70     
 BV BOUND     c71     
 BV BOUND     c72     
 BV BOUND     c73     
 BV BOUND     c74     
 BV BOUND     c75     
 BV BOUND     c76     
 BV BOUND     c77     
 BV BOUND     c78     
 BV BOUND     c79     
 FX BOUND     c80       1
 FX BOUND     c81       1
 FX BOUND     c82       1
 BV BOUND     c83     
 FX BOUND     c84       1
 BV BOUND     c85     
 FX BOUND     c86       1
 FX BOUND     c87       0
 FX BOUND     c88       1
 BV BOUND     c89     
 BV BOUND     c90     
 BV BOUND     c91     
 BV BOUND     c92     
 BV BOUND     c93     
 BV BOUND     c94     
 BV BOUND     c95     
 BV BOUND     c96     
 BV BOUND     c97     
 BV BOUND     c98     
 BV BOUND     c99     
 BV BOUND     c100    
 BV BOUND     c101    
 BV BOUND     c102    
 BV BOUND     c103    
 BV BOUND     c104    
 BV BOUND     c105    
 BV BOUND     c106    
 BV BOUND     c107    
 BV BOUND     c108    
 BV BOUND     c109    
 BV BOUND     c110    
 BV BOUND     c111    
 BV BOUND     c112    
 BV BOUND     c113    
 BV BOUND     c114    
 BV BOUND     c115    
 BV BOUND     c116    
 BV BOUND     c117    
 BV BOUND     c118    
 BV BOUND     c119    
 BV BOUND     c120    
 BV BOUND     c121    
 BV BOUND     c122    
 BV BOUND     c123    
 BV BOUND     c124    
 BV BOUND     c125    
 BV BOUND     c126    
 BV BOUND     c127    
 BV BOUND     c128    
 BV BOUND     c129    
 BV BOUND     c130    
 BV BOUND     c131    
 BV BOUND     c132    
 BV BOUND     c133    
 BV BOUND     c134    
 BV BOUND     c135    
 BV BOUND     c136    
 BV BOUND     c137    
 BV BOUND     c138    
 BV BOUND     c139    
 BV BOUND     c140    
 BV BOUND     c141    
 BV BOUND     c142    
 BV BOUND     c143    
 BV BOUND     c144    
 BV BOUND     c145    
 BV BOUND     c146    
 BV BOUND     c147    
 BV BOUND     c148    
 BV BOUND     c149    
 BV BOUND     c150    
 BV BOUND     c151    
 BV BOUND     c152    
 BV BOUND     c153    
 BV BOUND     c154    
 BV BOUND     c155    
 BV BOUND     c156    
 BV BOUND     c157    
 BV BOUND     c158    
 BV BOUND     c159    
 BV BOUND     c160    
 BV BOUND     c161    
 BV BOUND     c162    
 BV BOUND     c163    
 BV BOUND     c164    
 BV BOUND     c165    
 BV BOUND     c166    
 BV BOUND     c167    
 BV BOUND     c168    
 BV BOUND     c169    
 BV BOUND     c170    
 BV BOUND     c171    
 BV BOUND     c172    
 BV BOUND     c173    
 BV BOUND     c174    
 BV BOUND     c175    
 BV BOUND     c176    
 BV BOUND     c177    
 BV BOUND     c178    
 BV BOUND     c179    
 BV BOUND     c180    
 BV BOUND     c181    
 BV BOUND     c182    
 BV BOUND     c183    
 BV BOUND     c184    
 BV BOUND     c185    
 BV BOUND     c186    
 BV BOUND     c187    
 BV BOUND     c188    
 BV BOUND     c189    
 BV BOUND     c190    
 BV BOUND     c191    
 BV BOUND     c192    
 BV BOUND     c193    
 BV BOUND     c194    
 BV BOUND     c195    
 BV BOUND     c196    
 BV BOUND     c197    
 BV BOUND     c198    
 BV BOUND     c199    
 BV BOUND     c200    
 UP BOUND     c201      1
 UP BOUND     c202      1
 UP BOUND     c203      1
 UP BOUND     c204      1
 UP BOUND     c205      612
 UP BOUND     c206      612
 UP BOUND     c207      612
 UP BOUND     c208      612
 UP BOUND     c209      612
 UP BOUND     c210      612
 UP BOUND     c211      612
 UP BOUND     c212      612
 UP BOUND     c213      612
 UP BOUND     c214      612
 UP BOUND     c215      612
 UP BOUND     c216      612
 UP BOUND     c217      612
 UP BOUND     c218      612
 UP BOUND     c219      612
 UP BOUND     c220      612
 UP BOUND     c221      612
 UP BOUND     c222      612
 UP BOUND     c223      612
 UP BOUND     c224      612
ENDATA
